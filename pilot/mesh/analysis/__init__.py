"""Checks for problems between objects, such as references to missing objects and conflicting claims.

Each check is a derived function from an object's key to its problems, so an edit reruns only the checks that it
affects.
"""
