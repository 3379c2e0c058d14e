"""The default profile: the templates and values of injection where users bring none."""
