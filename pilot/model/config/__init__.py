"""What users write, a file a kind, in Istio's words."""
