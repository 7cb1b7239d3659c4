# Creates 20,000 commits.
python3 -c 'print("reset refs/heads/long\nfrom HEAD\n")
for n in range(20000):
    print("commit refs/heads/long\ncommitter a <a@a> 1700000000 +0000\ndata 1\nx\nfrom refs/heads/long^0" if n else
      "commit refs/heads/long\ncommitter a <a@a> 1700000000 +0000\ndata 1\nx\nfrom HEAD")' > /tmp/stream
sed -i '1,3d' /tmp/stream
git fast-import --quiet < /tmp/stream && git update-ref HEAD refs/heads/long
