"""Small parts are kept here that know nothing of Headgate's state: tasks, callbacks, reconnecting, forks."""
