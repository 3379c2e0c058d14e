"""The IstioOperator API: validation of an IstioOperator's settings, and the objects that result from them."""
