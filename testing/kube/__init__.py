"""Clients, controllers and meshes on the API server of the tests."""
