"""An adapter that serves Consul's catalog as configuration over xDS. It is an example for other registries."""
