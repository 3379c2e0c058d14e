"""Security of the process: authentication, the certificate authority, and the control plane's certificate."""
