"""ML agents on ML tasks: tasks with hidden answers, safe execution, agents, their runs and how far they got."""
