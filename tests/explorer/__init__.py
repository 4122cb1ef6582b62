"""The explorer: every order of events, with the code that ships. `make prove` says what is proved, in figures."""
