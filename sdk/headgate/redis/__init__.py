"""Redis: where keys are spelled, scripts are loaded and called, and a private server is started."""
