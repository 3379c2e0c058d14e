"""ADS: subscriptions and sessions as pure state, and the gRPC edge that carries their bytes."""
