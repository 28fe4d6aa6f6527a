# The command, with all that `vicinal train` needs: docker run --rm -v "$PWD:/data" vicinal train table.csv
FROM python:3.11-slim

WORKDIR /opt/vicinal
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt ".[train,text,audio,excel]" && useradd --create-home --uid 1000 vicinal

USER 1000
WORKDIR /data
ENTRYPOINT ["vicinal"]
CMD ["--help"]
