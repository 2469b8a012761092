# Debian 13 with what the course, its pages and its checks need. The sources stay outside:
#   docker build -t unshard .
#   docker run --rm -it -v "$PWD":/unshard unshard
FROM debian:13-slim

RUN apt-get update \
  && apt-get install -y --no-install-recommends ca-certificates git make openssh-client sudo \
  && rm -rf /var/lib/apt/lists/*

# The list of packages is the one that every target of the Makefile uses.
COPY common/scripts/install.sh /tmp/install.sh
RUN sh /tmp/install.sh build course gdb docs format && rm -rf /var/lib/apt/lists/* /tmp/install.sh

# The first user of most machines has this number, and so owns the sources. With sudo, make installs
# what the image lacks.
RUN useradd --create-home --uid 1000 student \
  && echo 'student ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/student
USER student
WORKDIR /unshard
CMD ["bash"]
