"""Parts of a cluster that a DestinationRule's traffic policy, or the mesh's default policy, configures."""
