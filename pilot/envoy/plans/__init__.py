"""Plans, which select the resources that a proxy receives.

Each kind of proxy has its own plan. The plans share builders.
"""
