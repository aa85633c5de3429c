# kerasmgpu on NVIDIA GPUs; docs/docker.md says how to use it, and what of it
# was never run.

# Python without a CUDA image: TensorFlow's pip packages bring CUDA's libraries
# in the versions that it was built for, and another copy would be 4 GB more.
# GPUs newer than these packages know (compute capability above 9.0) need
# NVIDIA's own build: `--build-arg BASE=` names its image.
ARG BASE=python:3.11-slim
FROM ${BASE}

# So that nothing runs as root, nor can write to what is installed. The host's
# driver is let in by NVIDIA's container toolkit, for any user.
RUN useradd --create-home trainer

# What `pip install` needs and no more: .dockerignore keeps the rest away, and
# a change of the docs or tests installs nothing anew.
COPY pyproject.toml setup.py README.md LICENSE /opt/kerasmgpu/
COPY kerasmgpu /opt/kerasmgpu/kerasmgpu
COPY packaging/install_in_image.sh /opt/kerasmgpu/
# The sources would stay in the image for nothing.
RUN bash /opt/kerasmgpu/install_in_image.sh /opt/kerasmgpu \
    && rm -r /opt/kerasmgpu

USER trainer
WORKDIR /home/trainer

# So that lines reach `docker logs` when they are printed.
ENV PYTHONUNBUFFERED=1

# No ENTRYPOINT: `docker run IMAGE python train.py` is the program, gets SIGTERM
# itself, and saves (kerasmgpu.callbacks.Checkpoint). Without words it shows
# that the GPUs are found.
CMD ["python", "-m", "kerasmgpu.recipes.autoencoder"]
