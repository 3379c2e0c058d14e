"""Problems between objects: what an object names that is not there, and what it claims that another has.

Each kind's check is a derived function from an object's key to its problems, so that an edit costs the checks that it reaches.
"""
