"""The IstioOperator: what its settings mean for the charts and the objects that they give."""
