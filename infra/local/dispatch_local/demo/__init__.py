"""`make demo`: the whole product on the local cluster, told as it happens.

`stage.py` prepares cluster, installation and example; `watching.py` brings the facts from the API server;
`story.py` turns facts into lines and remembers them; `play.py` says what has to happen, in which order;
`command.py` is the command line. What is told comes from watches and from the pods' own logs.
"""
