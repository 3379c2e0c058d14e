"""The injector's default templates and values. They are used unless the user provides others."""
