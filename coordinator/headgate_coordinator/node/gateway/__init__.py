"""The gateway serves SDKs: each of their calls is checked, done and answered over one link."""
