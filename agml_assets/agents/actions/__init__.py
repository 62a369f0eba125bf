"""What agents can do: the actions of MLAgentBench, and a modern set; all of it inside the sandbox."""
