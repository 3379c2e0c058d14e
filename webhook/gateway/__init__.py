"""What is deployed for Gateways of the Gateway API: rendered from a template, with what users lay over it."""
