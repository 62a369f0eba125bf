"""What people launch: jobs, schedules and sensors."""
