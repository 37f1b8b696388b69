"""What people see of effects, in terminal and browser: data and sentences. Nothing is changed."""
