# Autolab runs make in a folder with this file (as Makefile), autograde.tar and what was handed in,
# under the base name of the lab. The course has been compiled in the image (its Dockerfile): a
# submission compiles the student's files only. The last line of the output has the scores.
HANDIN = submission.tar.gz
COURSE = /opt/unshard
# Only root can give each run a user of its own. The image allows this one command.
root = $(if $(filter 0,$(shell id -u)),,sudo -n)

all:
	@$(root) /usr/bin/python3 $(COURSE)/apps/course/autolab.py run $(HANDIN)
