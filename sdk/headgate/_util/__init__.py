"""Small parts that know nothing of Headgate's state: tasks, callbacks, reconnecting, forks."""
