"""The objects that users write, a file a kind, in Istio's words."""
