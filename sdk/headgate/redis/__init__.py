"""Redis is called from here: keys are spelled, scripts are loaded and called, and a private server is started."""
