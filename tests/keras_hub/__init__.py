"""KerasHub's and keras-rs's models on one device and on replicas.

pip install keras-hub keras-rs
python -m tests.keras_hub bert resnet
"""
