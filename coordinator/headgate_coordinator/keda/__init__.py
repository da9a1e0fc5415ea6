"""A node is KEDA's external scaler: it says how much there is to do, and for how many workers there is room."""
