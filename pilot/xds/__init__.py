"""This package serves ADS: subscriptions and sessions are pure state, and the gRPC edge carries their bytes."""
