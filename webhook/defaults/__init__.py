"""The injector's default templates and values, used unless the user provides others."""
