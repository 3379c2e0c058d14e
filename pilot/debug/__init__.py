"""The pages for people and scrapers on the monitoring port (15014) and below /debug on 8080.

`application(sources)` is the whole web application of 15014; `routes(sources)` are the /debug pages alone, to be added to
that of 8080.
"""
