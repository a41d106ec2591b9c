"""Published kinds of process reward model that write no critique, with the interface of the generative verifier."""
