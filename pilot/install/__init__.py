"""What an IstioOperator means, put into a cluster: applied in order, waited for, and what is no longer meant taken away."""
