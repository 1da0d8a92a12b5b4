# Written by images/update_locks.py from targets.toml. From the root of the repository:
#
#   docker buildx bake -f images/docker-bake.hcl blackwell
#   PIP_CONFIG=pip.conf CA_FILE=ca.pem docker buildx bake -f images/docker-bake.hcl
#
# PIP_CONFIG and CA_FILE are passed as secrets and stay in no layer. With BuildKit 0.13 or
# newer, --set '*.output=type=docker,rewrite-timestamp=true' makes the image digest repeatable.

variable "PIP_CONFIG" {
  default = ""
}

variable "CA_FILE" {
  default = ""
}

variable "SOURCE_DATE_EPOCH" {
  default = "1767225600"
}

group "default" {
  targets = ["ada", "hopper", "blackwell"]
}

target "_common" {
  context = "images"
  target  = "final"
  secret = concat(
    PIP_CONFIG == "" ? [] : ["id=pip-config,src=${PIP_CONFIG}"],
    CA_FILE == "" ? [] : ["id=ca,src=${CA_FILE}"]
  )
  args = {
    SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH
  }
}

target "ada" {
  inherits = ["_common"]
  args = {
    BASE                 = "python:3.12-slim-bookworm@sha256:0f5b26b9518d002b6173fd61daad821fa340635ebfec5bba471013f9ca114579"
    LOCK                 = "locks/ada.txt"
    BUILDER_LOCK         = "locks/ada-builder.txt"
    KERNELS              = ""
    TARGET               = "ada"
    SM                   = "sm_89"
    TORCH                = "2.14.1"
    CUDA                 = "13.0"
    TORCH_CUDA_ARCH_LIST = "8.9"
    NVIDIA_REQUIRE_CUDA  = "cuda>=13.0"
  }
  tags = ["envcheck-ada:latest"]
}

target "hopper" {
  inherits = ["_common"]
  args = {
    BASE                 = "python:3.12-slim-bookworm@sha256:0f5b26b9518d002b6173fd61daad821fa340635ebfec5bba471013f9ca114579"
    LOCK                 = "locks/hopper.txt"
    BUILDER_LOCK         = "locks/hopper-builder.txt"
    KERNELS              = ""
    TARGET               = "hopper"
    SM                   = "sm_90"
    TORCH                = "2.14.1"
    CUDA                 = "13.0"
    TORCH_CUDA_ARCH_LIST = "9.0"
    NVIDIA_REQUIRE_CUDA  = "cuda>=13.0"
  }
  tags = ["envcheck-hopper:latest"]
}

target "blackwell" {
  inherits = ["_common"]
  args = {
    BASE                 = "python:3.12-slim-bookworm@sha256:0f5b26b9518d002b6173fd61daad821fa340635ebfec5bba471013f9ca114579"
    LOCK                 = "locks/blackwell.txt"
    BUILDER_LOCK         = "locks/blackwell-builder.txt"
    KERNELS              = ""
    TARGET               = "blackwell"
    SM                   = "sm_120"
    TORCH                = "2.14.1"
    CUDA                 = "13.0"
    TORCH_CUDA_ARCH_LIST = "12.0"
    NVIDIA_REQUIRE_CUDA  = "cuda>=13.0"
  }
  tags = ["envcheck-blackwell:latest"]
}
