"""What people launch: jobs, their hooks, schedules and sensors."""
