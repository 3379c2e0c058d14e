"""What an API server asks before it takes an object: /inject for pods, /validate for configuration."""
