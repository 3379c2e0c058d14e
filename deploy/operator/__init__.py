"""The IstioOperator API: validation of its settings, and the objects that result from them."""
