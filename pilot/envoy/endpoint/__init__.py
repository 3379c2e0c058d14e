"""Endpoints (EDS): load assignments, and the clusters that contain their endpoints."""
