"""Clients, controllers and meshes for the API server of the tests."""
