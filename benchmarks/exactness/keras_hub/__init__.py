"""KerasHub's and keras-rs's models, by the settings of KerasHub's own tests."""
