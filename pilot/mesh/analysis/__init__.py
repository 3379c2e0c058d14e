"""Checks for problems between objects, such as references to missing objects and conflicting claims.

Each check is a derived function that returns the problems of one object, so an edit reruns only the checks that it
affects.
"""
