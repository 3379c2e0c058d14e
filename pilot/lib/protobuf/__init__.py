"""Messages of protobuf whatever their type: found by name, read from JSON, merged, and held against the rules of their fields."""
