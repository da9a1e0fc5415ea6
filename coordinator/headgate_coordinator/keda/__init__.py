"""KEDA's external scaler: an autoscaler asks a node how much there is to do, and for how many workers there is room."""
