"""One set of client scenarios, as data, that every foreign client plays against a live broker.

`catalog` says what is done and what must come out, `drivers` how one client library does it, `play` brings
the two together. A client is added by writing a driver; a behaviour is added by writing a scenario.
"""
