"""The answers of the JSON API about limiters, pools and spool stores."""
